"""What runs in the interpreter of the target, where nothing else of necropsy can be imported: Python 3.8 and later."""
