#include "tests/runtime/executor/malloc_hook.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <sstream>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)

namespace zerocc {
bool allocationCounterWorks() { return false; }
void startCountingAllocations() {}
AllocationCounts stopCountingAllocations() { return {}; }
} // namespace zerocc

#else

#include <cerrno>
#include <cstdlib>
#include <new>

// glibc's own allocator is still there under these names when malloc is replaced.
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
}

namespace zerocc {
namespace {

struct Call {
  void *caller;
  int64_t bytes;
};
constexpr int kKeptCalls = 256;

std::atomic<bool> counting{false};
std::atomic<int64_t> ours{0}, ourBytes{0}, libraries{0}, libraryBytes{0}, largest{0};
std::atomic<int> kept{0};
Call keptCalls[kKeptCalls];

bool isOurs(void *caller) {
  Dl_info info;
  if (!dladdr(caller, &info) || !info.dli_fname)
    return true;
  static const char *executable = [] {
    Dl_info self;
    dladdr(reinterpret_cast<void *>(&isOurs), &self);
    return self.dli_fname;
  }();
  return std::strcmp(info.dli_fname, executable) == 0 || std::strstr(info.dli_fname, "libstdc++") != nullptr;
}

void note(int64_t bytes, void *caller) {
  if (!counting.load(std::memory_order_relaxed))
    return;
  const bool mine = isOurs(caller);
  (mine ? ours : libraries).fetch_add(1);
  (mine ? ourBytes : libraryBytes).fetch_add(bytes);
  for (int64_t seen = largest.load(); seen < bytes && !largest.compare_exchange_weak(seen, bytes);) {
  }
  if (const int index = kept.fetch_add(1); index < kKeptCalls)
    keptCalls[index] = {caller, bytes};
}

std::string nameOf(void *caller) {
  Dl_info info;
  if (!dladdr(caller, &info) || !info.dli_fname)
    return "?";
  std::ostringstream text;
  if (info.dli_sname)
    text << info.dli_sname << "+0x" << std::hex
         << static_cast<char *>(caller) - static_cast<char *>(info.dli_saddr);
  else
    text << "0x" << std::hex << static_cast<char *>(caller) - static_cast<char *>(info.dli_fbase);
  text << " (" << info.dli_fname << ")";
  return text.str();
}

} // namespace

bool allocationCounterWorks() { return true; }

void startCountingAllocations() {
  isOurs(reinterpret_cast<void *>(&isOurs)); // what it looks up once is looked up now
  ours = ourBytes = libraries = libraryBytes = largest = 0;
  kept = 0;
  counting = true;
}

AllocationCounts stopCountingAllocations() {
  counting = false;
  AllocationCounts counts{ours, ourBytes, libraries, libraryBytes, largest, ""};
  std::ostringstream text;
  text << counts.ours + counts.libraries << " calls, " << counts.ourBytes + counts.libraryBytes << " B";
  for (int i = 0; i < std::min({kept.load(), kKeptCalls, 8}); ++i)
    text << (i ? "; " : ": ") << keptCalls[i].bytes << " B from " << nameOf(keptCalls[i].caller);
  counts.text = text.str();
  return counts;
}

} // namespace zerocc

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

extern "C" {

void *malloc(size_t bytes) {
  zerocc::note(bytes, CALLER);
  return __libc_malloc(bytes);
}
void free(void *memory) { __libc_free(memory); }
void *calloc(size_t count, size_t bytes) {
  zerocc::note(count * bytes, CALLER);
  return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  zerocc::note(bytes, CALLER);
  return __libc_realloc(memory, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  zerocc::note(bytes, CALLER);
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  zerocc::note(bytes, CALLER);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  zerocc::note(bytes, CALLER);
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}

} // extern "C"

// libstdc++'s operator new calls malloc: its caller would be libstdc++ whoever asked. These are seen first.
namespace {
void *allocate(size_t bytes, void *caller) {
  zerocc::note(bytes, caller);
  void *memory = __libc_malloc(bytes);
  if (!memory)
    throw std::bad_alloc();
  return memory;
}
void *allocate(size_t bytes, std::align_val_t alignment, void *caller) {
  zerocc::note(bytes, caller);
  void *memory = __libc_memalign(static_cast<size_t>(alignment), bytes);
  if (!memory)
    throw std::bad_alloc();
  return memory;
}
} // namespace

void *operator new(size_t bytes) { return allocate(bytes, CALLER); }
void *operator new[](size_t bytes) { return allocate(bytes, CALLER); }
void *operator new(size_t bytes, std::align_val_t alignment) { return allocate(bytes, alignment, CALLER); }
void *operator new[](size_t bytes, std::align_val_t alignment) { return allocate(bytes, alignment, CALLER); }
void operator delete(void *memory) noexcept { __libc_free(memory); }
void operator delete[](void *memory) noexcept { __libc_free(memory); }
void operator delete(void *memory, size_t) noexcept { __libc_free(memory); }
void operator delete[](void *memory, size_t) noexcept { __libc_free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete[](void *memory, size_t, std::align_val_t) noexcept { __libc_free(memory); }

#endif
