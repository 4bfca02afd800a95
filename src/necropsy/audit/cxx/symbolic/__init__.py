"""What C++ code does with tensors: values as polynomials, what each path knows, and accesses that it does not check."""
