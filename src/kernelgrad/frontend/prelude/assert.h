// As in C, each inclusion decides anew by NDEBUG.
#undef assert
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) __kg_assert(bool(__VA_ARGS__), #__VA_ARGS__)
#endif
