/* What is around a line of examples/testing.c's tests: that program, but for its main(). */
#define main of_the_example
#include "../../../examples/testing.c"
#undef main

int main(void) {
    dlock_client *client;
    int failed = 0;
    (void)of_the_example;
#include BLOCK
    dlock_close(somebody);
    dlock_close(client);
    return failed != 0;
}
