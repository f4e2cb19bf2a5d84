//! What is logged in a test.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The log of this thread, and so of all that runs on its runtime.
pub struct Logs;

impl Logs {
    /// Every test that may log has to call this first. A subscriber of one thread alone would not do: what a thread without
    /// one logs first is taken for disabled in all of them.
    pub fn start() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            let lines = tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(|| OfThisThread).finish();
            tracing::subscriber::set_global_default(lines).unwrap();
        });
        LOG.take();
        Self
    }

    /// The lines so far that contain a text.
    #[allow(clippy::unused_self, reason = "a log that was not started is empty")]
    pub fn with(&self, text: &str) -> Vec<String> {
        let all = String::from_utf8(LOG.with_borrow(Clone::clone)).unwrap();
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

struct OfThisThread;

impl io::Write for OfThisThread {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
