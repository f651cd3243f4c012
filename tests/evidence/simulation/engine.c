/* Time and chance of a server in a simulated world, loaded in front of the C library.

   In the file named in WORLD_CLOCK, the world has put two numbers of microseconds: where the wall
   clock stands, and how long the world has existed. They are looked at where the server reads what it
   is asked, so no time passes between two questions, however long those are apart. What the server
   takes for random comes from the file named in WORLD_CHANCE. A piece of memory is as large as was
   asked for: the C library's own pieces may be larger, by where they lie, and `MEMORY USAGE` says so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#undef fopen64 /* some C libraries have them as macros */
#undef open64

/* --- memory ------------------------------------------------------------------------------------ */

typedef struct {
  void *begin; /* of what the C library gave */
  size_t size;
} Piece;

static void *take(size_t size) {
  static void *(*real)(size_t);
  if (!real) real = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return real(size);
}

static void give_back(void *begin) {
  static void (*real)(void *);
  if (!real) real = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  real(begin);
}

static Piece *piece_of(void *given) { return (Piece *)given - 1; }

void *memalign(size_t alignment, size_t size) {
  if (alignment < sizeof(Piece)) alignment = sizeof(Piece);
  size_t more = alignment + sizeof(Piece);
  void *begin = size > SIZE_MAX - more ? NULL : take(size + more);
  if (!begin) {
    errno = ENOMEM;
    return NULL;
  }
  void *given = (void *)(((uintptr_t)begin + more - 1) / alignment * alignment);
  *piece_of(given) = (Piece){begin, size};
  return given;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **into, size_t alignment, size_t size) {
  void *given = memalign(alignment, size);
  if (given) *into = given;
  return given ? 0 : ENOMEM;
}

void *malloc(size_t size) { return memalign(sizeof(Piece), size); }

void *calloc(size_t count, size_t each) {
  size_t size;
  void *given = __builtin_mul_overflow(count, each, &size) ? NULL : memalign(sizeof(Piece), size);
  return given ? memset(given, 0, size) : NULL;
}

void free(void *given) {
  if (given) give_back(piece_of(given)->begin);
}

size_t malloc_usable_size(void *given) { return given ? piece_of(given)->size : 0; }

void *realloc(void *given, size_t size) {
  void *other = malloc(size);
  size_t kept = malloc_usable_size(given);
  if (!other || !given) return other;
  memcpy(other, given, kept < size ? kept : size);
  free(given);
  return other;
}

/* --- the world --------------------------------------------------------------------------------- */

static const volatile int64_t *clocks;
static int64_t wall = 0, elapsed = 0;
static const char *chance;

static void look(void) {
  if (!clocks) return;
  wall = clocks[0];
  elapsed = clocks[1];
}

static uint64_t since_the_beginning(void) { return (uint64_t)elapsed; }

__attribute__((constructor)) static void begin(void) {
  give_back(take(1)); /* dlsym itself takes memory for what it does not find: these have to be found before */
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* it ends with its world */
  const char *name = getenv("WORLD_CLOCK");
  int file = name ? open(name, O_RDONLY) : -1;
  void *page = file < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof *clocks, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return;
  close(file);
  clocks = page;
  look();
  chance = getenv("WORLD_CHANCE");
  /* The server's own clock: by default a counter of the processor, which nobody else can move. */
  uint64_t (**its_clock)(void) = dlsym(RTLD_DEFAULT, "getMonotonicUs");
  if (its_clock) *its_clock = since_the_beginning;
}

/* --- time ------------------------------------------------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *time) {
  int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  int64_t now = is_wall ? wall : elapsed;
  if (!clocks) return (int)syscall(SYS_clock_gettime, clock, time);
  time->tv_sec = now / 1000000;
  time->tv_nsec = now % 1000000 * 1000;
  return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
  struct timespec precise;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &precise);
  time->tv_sec = precise.tv_sec;
  time->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (into) *into = precise.tv_sec;
  return precise.tv_sec;
}

ssize_t read(int file, void *into, size_t size) {
  ssize_t count = syscall(SYS_read, file, into, size);
  if (count > 0) look();
  return count;
}

ssize_t recv(int file, void *into, size_t size, int flags) {
  ssize_t count = recvfrom(file, into, size, flags, NULL, NULL);
  if (count > 0) look();
  return count;
}

/* --- chance ----------------------------------------------------------------------------------- */

pid_t getpid(void) { return 1; }

static const char *instead_of(const char *path) {
  int is_random = !strcmp(path, "/dev/urandom") || !strcmp(path, "/dev/random");
  return chance && is_random ? chance : path;
}

static FILE *open_file(const char *name, const char *path, const char *mode) {
  FILE *(*real)(const char *, const char *) =
      (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
  return real(instead_of(path), mode);
}

FILE *fopen(const char *path, const char *mode) { return open_file("fopen", path, mode); }

FILE *fopen64(const char *path, const char *mode) { return open_file("fopen64", path, mode); }

static int open_descriptor(const char *path, int flags, mode_t mode) {
  return openat(AT_FDCWD, instead_of(path), flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return open_descriptor(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return open_descriptor(path, flags | O_LARGEFILE, mode);
}
