"""Optional layers of ``check`` on C++ sources: a compile database, a compiler and clang-tidy, where they exist."""
