"""The commands: argument parsing and calls.  ``tools/NAME.py`` and ``yolact-mx`` run them."""
