//! How far it is, on standard error: a bar that moves on a terminal, a line now and then elsewhere.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinHandle;

const WIDTH: usize = 40;

/// A phase in its course. Its display ends with it.
pub(super) struct Progress {
    done: Arc<AtomicUsize>,
    shown: JoinHandle<()>,
}

impl Progress {
    /// Shows how many of `total` are done.
    pub(super) fn start(name: &'static str, total: usize) -> Self {
        let done = Arc::new(AtomicUsize::new(0));
        let (counter, terminal) = (done.clone(), stderr().is_terminal());
        let shown = tokio::spawn(async move {
            let period = Duration::from_millis(if terminal { 200 } else { 5000 });
            loop {
                tokio::time::sleep(period).await;
                show(terminal, &line(name, counter.load(Ordering::Relaxed), total));
            }
        });
        Self { done, shown }
    }

    /// What is to be raised with everything that is done.
    pub(super) fn counter(&self) -> Arc<AtomicUsize> {
        self.done.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shown.abort();
        if stderr().is_terminal() {
            show(true, "");
        }
    }
}

/// Says what comes next.
pub(super) fn say(text: &str) {
    // Nobody needs it if there is nobody to read it.
    let _ = writeln!(stderr(), "{text}");
}

fn show(terminal: bool, text: &str) {
    if terminal {
        let _ = write!(stderr(), "\r\x1b[K{text}");
    } else {
        say(text);
    }
}

fn line(name: &str, done: usize, total: usize) -> String {
    let filled = (WIDTH * done.min(total)).checked_div(total).unwrap_or(WIDTH);
    format!("{name} [{}{}] {done}/{total}", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_at_its_end() {
        assert_eq!(line("joins", 1, 2), format!("joins [{}{}] 1/2", "#".repeat(20), ".".repeat(20)));
        assert_eq!(line("joins", 0, 0), format!("joins [{}] 0/0", "#".repeat(40)));
    }
}
