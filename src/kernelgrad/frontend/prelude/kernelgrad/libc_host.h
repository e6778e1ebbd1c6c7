// The C library for host code that stands beside kernels: declared so that it parses.
#pragma once

typedef __builtin_va_list va_list;
#define va_start(list, last) __builtin_va_start(list, last)
#define va_arg(list, type) __builtin_va_arg(list, type)
#define va_end(list) __builtin_va_end(list)
#define va_copy(to, from) __builtin_va_copy(to, from)

typedef struct __kg_file FILE;
extern FILE *stdin, *stdout, *stderr;
extern int errno;
typedef long time_t, clock_t, off_t, suseconds_t;
typedef int pid_t;
struct timeval {
  time_t tv_sec;
  suseconds_t tv_usec;
};
struct timezone {
  int tz_minuteswest, tz_dsttime;
};
struct timespec {
  time_t tv_sec;
  long tv_nsec;
};
struct option {
  const char *name;
  int has_arg, *flag, val;
};
struct tm {
  int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year, tm_wday, tm_yday, tm_isdst;
};

#define no_argument 0
#define required_argument 1
#define optional_argument 2
#define EOF (-1)
#define SEEK_SET 0
#define SEEK_CUR 1
#define SEEK_END 2
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
#define CLOCKS_PER_SEC 1000000
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#define PRId32 "d"
#define PRIu32 "u"
#define PRId64 "ld"
#define PRIu64 "lu"

extern "C" {
int fprintf(FILE *file, const char *format, ...);
int sprintf(char *text, const char *format, ...);
int snprintf(char *text, size_t bytes, const char *format, ...);
int vprintf(const char *format, va_list list);
int vfprintf(FILE *file, const char *format, va_list list);
int vsnprintf(char *text, size_t bytes, const char *format, va_list list);
int scanf(const char *format, ...);
int fscanf(FILE *file, const char *format, ...);
int sscanf(const char *text, const char *format, ...);
int puts(const char *text);
int putchar(int c);
int fputs(const char *text, FILE *file);
int fputc(int c, FILE *file);
int putc(int c, FILE *file);
int getchar();
int fgetc(FILE *file);
int getc(FILE *file);
int ungetc(int c, FILE *file);
char *fgets(char *text, int bytes, FILE *file);
FILE *fopen(const char *name, const char *mode);
int fclose(FILE *file);
int fflush(FILE *file);
int feof(FILE *file);
int fseek(FILE *file, long offset, int whence);
long ftell(FILE *file);
void rewind(FILE *file);
size_t fread(void *to, size_t bytes, size_t count, FILE *file);
size_t fwrite(const void *from, size_t bytes, size_t count, FILE *file);
int remove(const char *name);
void perror(const char *text);

void *calloc(size_t count, size_t bytes);
void *realloc(void *old, size_t bytes);
void *aligned_alloc(size_t align, size_t bytes);
int posix_memalign(void **memory, size_t align, size_t bytes);
void exit(int status);
void abort();
int atexit(void (*function)());
char *getenv(const char *name);
int system(const char *command);
int atoi(const char *text);
long atol(const char *text);
long long atoll(const char *text);
double atof(const char *text);
long strtol(const char *text, char **end, int base);
long long strtoll(const char *text, char **end, int base);
unsigned long strtoul(const char *text, char **end, int base);
unsigned long long strtoull(const char *text, char **end, int base);
double strtod(const char *text, char **end);
float strtof(const char *text, char **end);
int rand();
void srand(unsigned int seed);
int rand_r(unsigned int *seed);
long random();
void srandom(unsigned int seed);
double drand48();
void srand48(long seed);
long lrand48();
void qsort(void *base, size_t count, size_t bytes, int (*compare)(const void *, const void *));

long __kg_nanoseconds();
FILE *__kg_open_text();              // a file in memory
char *__kg_text_of(FILE *file);      // what was written to it so far, to be freed
void *memmove(void *to, const void *from, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t bytes);
int strcasecmp(const char *a, const char *b);
char *strcpy(char *to, const char *from);
char *strncpy(char *to, const char *from, size_t bytes);
char *strcat(char *to, const char *from);
char *strdup(const char *text);
char *strtok(char *text, const char *separators);
char *strchr(const char *text, int c);
char *strrchr(const char *text, int c);
char *strstr(const char *text, const char *part);
char *strerror(int code);
int isdigit(int c);
int isspace(int c);
int isalpha(int c);
int tolower(int c);
int toupper(int c);

time_t time(time_t *now);
tm *localtime(const time_t *now);
size_t strftime(char *text, size_t bytes, const char *format, const tm *when);
int gettimeofday(timeval *now, void *zone);
int clock_gettime(int which, timespec *now);
unsigned int sleep(unsigned int seconds);
int usleep(unsigned int microseconds);
pid_t getpid();
int getopt(int count, char *const arguments[], const char *options);
int getopt_long(int count, char *const arguments[], const char *options, const struct option *longs, int *index);
extern char *optarg;
extern int optind, opterr, optopt;
}

namespace std {
using ::abort;
using ::atof;
using ::atoi;
using ::atol;
using ::calloc;
using ::clock_t;
using ::exit;
using ::fclose;
using ::fflush;
using ::FILE;
using ::fopen;
using ::fprintf;
using ::fread;
using ::fwrite;
using ::getenv;
using ::memcmp;
using ::memmove;
using ::puts;
using ::qsort;
using ::rand;
using ::realloc;
using ::scanf;
using ::snprintf;
using ::sprintf;
using ::srand;
using ::sscanf;
using ::strcmp;
using ::strcpy;
using ::strlen;
using ::strcat;
using ::strchr;
using ::strncpy;
using ::strstr;
using ::strncmp;
using ::strtod;
using ::strtof;
using ::strtol;
using ::strtoll;
using ::strtoul;
using ::strtoull;
using ::time;
using ::time_t;
using ::tolower;
using ::toupper;
using ::clock;
using ::va_list;
}  // namespace std
