"""Code generators: IR to CUDA C++, IR to native code."""
