"""What schedules find in a function: the loops of its family, what they read, and the blocks around them."""
