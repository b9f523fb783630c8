// failing_ranks CASE: run under mpirun by communicator_failure_test.cpp.
int main() { return 0; }
