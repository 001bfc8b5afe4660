//! Sockets, shard threads, read and write buffers; bytes in, bytes out.
