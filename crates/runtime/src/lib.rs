//! The real world: io_uring, threads, files, block devices, sockets, clock, locks
