"""What every room needs: arguments, files, state layout, progress."""
