#pragma once
// The library's log to logging.getLogger("gradloom").

namespace gradloom::python {

// Called with the interpreter's lock. The library may log on any thread, with the lock or without: what it logs waits
// in a queue, so that it never waits for the lock.
void start_logging();
void stop_logging();  // what waits is logged; then the library writes to stderr. For atexit
void log_waiting();   // logs what waits, if anything does

}  // namespace gradloom::python
