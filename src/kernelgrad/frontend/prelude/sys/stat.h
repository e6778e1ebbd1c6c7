// Empty: host code that needs more than this is not read.
