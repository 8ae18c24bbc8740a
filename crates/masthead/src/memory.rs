//! How the process wants its memory.

/// Asks for pages of 4 KiB only, or takes that back. Objects come in all sizes and go in any order, so that huge pages are
/// mostly kept for a part of them: they cost a server with 10,000 pods a seventh more memory, a client with
/// as many a sixth, and the time to clear them doubles the start with 100,000. What one gains is a tenth to
/// a fifth of the time of an update. The allocator, which would have some before this is called, asks for the same
/// (`no_thp`); what others start would inherit that.
pub(crate) fn prefer_small_pages(small: bool) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(small) {
        tracing::debug!(%error, "huge pages stay as they are");
    }
}
