"""C++ sources of custom ops: preprocessed, parsed and collected into a model, without compiler, headers or build."""
