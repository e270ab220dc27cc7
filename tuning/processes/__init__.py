"""Worker processes: started once, replaced where they die."""
