/* Time and chance of a server in a simulated world: its wall clock stands where the world has put it
   (microseconds in the file named in WORLD_CLOCK), and what it takes for random comes from the file
   named in WORLD_CHANCE. Loaded in front of the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *now;

__attribute__((constructor)) static void open_clock(void) {
  const char *name = getenv("WORLD_CLOCK");
  int file = name ? open(name, O_RDONLY) : -1;
  void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *now, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) now = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!now || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
    return (int)syscall(SYS_clock_gettime, clock, time);
  time->tv_sec = *now / 1000000;
  time->tv_nsec = *now % 1000000 * 1000;
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

pid_t getpid(void) { return 1; }

FILE *fopen(const char *path, const char *mode) {
  FILE *(*real)(const char *, const char *) =
      (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
  const char *chance = getenv("WORLD_CHANCE");
  return real(chance && !strcmp(path, "/dev/urandom") ? chance : path, mode);
}
