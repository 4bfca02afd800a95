"""Collects the environment that a program would run in. What is wrong with it is for the rules in ``rules/env``.

Nothing of the environment is imported or loaded: files are read, and the interpreter is asked to describe itself.

To add a check:

1. The fact: a field of ``Environment`` or of one of its nouns (``model/environment.py``), ``None`` where it was not
   observed, with its unit in a line below it. JSON documents are not concerned: they hold the findings.
2. The collector: one file here for one subject, a function that returns plain data. Call it in ``_Collector`` of
   ``collect.py`` through ``_try``, which makes a ``Gap`` of what fails. It may import ``model``, ``formats``, ``data``
   and ``doctor``, and must work with 128 KiB of stack, 1 GB of address space and a full disk.
3. The rule: ``rules/env/env_NAME.py`` with a page as its docstring, and a ``RULE`` of an ``Environment``.
   ``needs`` names fields of ``Environment``: where one is None, the rule is listed as not checked, with that gap's
   reason.
   ``checks`` says in a few words what it looks at. ``match`` returns a ``Finding``; ``several`` makes one of many.
   ``about`` holds a key for each cause: where a rule that names this one in ``beats`` has a finding with the same key,
   that one is told and this one becomes its evidence. ``rules/packages.py`` writes commands that install something.
4. ``hit`` and ``miss``: sketches of environments, see ``tests/environment_sketch.py``; a new fact needs a word there.
5. A really broken environment in ``tests/doctor`` (``tests/doctor_building.py`` makes distributions and small
   libraries), and ``make docs``.

A rule that is not asked yet because something is missing (a probe that was not wanted, no GPU) needs no code: leave the
field None and add a ``Gap`` of its name that says why.
"""
