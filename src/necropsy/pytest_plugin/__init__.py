"""``pytest --necropsy``: a test that crashes the process is one failure, and the others go on.

The process that the user started (``keeper``) forks once, before anything of the user's is imported. The child is the
whole pytest session; it writes down what it does (``session``, ``journal``). When it dies, the keeper reads the
journal, asks the watcher what killed it, and forks again. The new child collects, replays the reports of the tests
that had finished with the terminal muted, reports the dead test as failed (``resume``), and runs the others.
"""
