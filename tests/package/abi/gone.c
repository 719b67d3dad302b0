/* A client library that is there when its module is built, and not when it is loaded. */
int dlock_abi_gone(void);

int dlock_abi_gone(void) {
    return 1;
}
