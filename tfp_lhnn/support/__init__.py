"""What all other subpackages need: arguments, files, state layout, progress."""
