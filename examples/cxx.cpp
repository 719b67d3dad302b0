/* dlock's locks as C++ mutexes.
 *
 *     cxx URI NAME
 */
#include <dlock/dlock.hpp>

#include <iostream>
#include <mutex>

int main(int argc, char **argv) try {
    if (argc != 3) {
        std::cerr << "usage: cxx URI NAME\n";
        return 64;
    }
    dlock::client client(argv[1]);
    dlock::options how;
    how.on_lost = [](const dlock::lost &why) { std::cerr << why.what() << ", fence " << why.fence() << "\n"; };
    dlock::lock job(client, argv[2], how);

    std::unique_lock<dlock::lock> guard(job, std::chrono::seconds(2));
    if (!guard) {
        std::cout << "somebody else has it\n";
        return 1;
    }
    std::cout << "fence " << job.fence() << ", for another " << job.remaining().count() << " ms unless renewed\n";
    return 0;
} catch (const dlock::error &why) {
    std::cerr << why.what() << "\n";
    return why.code() == DLOCK_EINVAL ? 64 : 69;
}
