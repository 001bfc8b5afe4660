//! Topic names, filters, the subscription trie, the retained index, share groups, the route cache.

#![forbid(unsafe_code)]
