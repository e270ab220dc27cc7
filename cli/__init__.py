"""The commands: thin, each calls one public function."""
