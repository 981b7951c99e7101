//! What one peer, or one operation, may use of what all connections of an endpoint share. Real endpoints, driven in turns by one
//! thread, so that nothing depends on time: a peer that is silent is one that gets no turn.

mod held_completions;
mod operations;
mod scene;
