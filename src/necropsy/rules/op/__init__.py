"""Rules on libraries that were named with ``necropsy doctor --op``, such as custom ops."""
