//! Joins the native rooms into one running broker and carries effects to their owners.

#![forbid(unsafe_code)]
