//! Keys that end a full-screen view.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key that ends a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Press {
    /// `q` or Escape.
    Quit,
    /// Ctrl-C, which ends the view as the signal does.
    Interrupt,
}

/// Waits for a key, at most for `within`.
pub(crate) fn pressed(within: Duration) -> io::Result<Option<Press>> {
    if !event::poll(within)? {
        return Ok(None);
    }
    Ok(if let Event::Key(key) = event::read()? { press(key) } else { None })
}

fn press(key: KeyEvent) -> Option<Press> {
    let is_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind != KeyEventKind::Press => None,
        KeyCode::Char('c') if is_ctrl => Some(Press::Interrupt),
        KeyCode::Char('q') | KeyCode::Esc => Some(Press::Quit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_interrupts_and_q_quits() {
        for (code, modifiers, expected) in [
            (KeyCode::Char('c'), KeyModifiers::CONTROL, Some(Press::Interrupt)),
            (KeyCode::Char('c'), KeyModifiers::NONE, None),
            (KeyCode::Char('q'), KeyModifiers::NONE, Some(Press::Quit)),
            (KeyCode::Esc, KeyModifiers::NONE, Some(Press::Quit)),
        ] {
            assert_eq!(press(KeyEvent::new(code, modifiers)), expected, "{code:?}");
        }
    }
}
