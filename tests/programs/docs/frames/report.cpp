/* What is around a fragment that makes a report. */
#include <dlock/dlock.hpp>

#include <chrono>
#include <cstdlib>
#include <mutex>

static bool written;

static void write_report(std::uint64_t fence) {
    written = fence != 0;
}

int main() {
#include BLOCK
    return written ? EXIT_SUCCESS : EXIT_FAILURE;
}
