/* The contract suite as one mode of dlock-conformance. */
#ifndef DLOCK_TESTS_CONTRACT_RUN_H
#define DLOCK_TESTS_CONTRACT_RUN_H

/* Runs the files of cases whose name matches the pattern, or all. Returns the program's exit status. */
int contract_run(const char *uri, const char *pattern);

/* Prints the names of all cases. */
void contract_list(void);

#endif
