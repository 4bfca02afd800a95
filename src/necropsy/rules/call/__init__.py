"""Rules on a call that ``necropsy fuzz`` has made several times: one file each."""
