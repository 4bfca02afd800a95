"""Whether what the rules on custom ops predict comes true: the op is built, called in child processes, and judged."""
