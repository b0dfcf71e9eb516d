//! What a run has pinned: JSON as the catalog gave it, which is read once by whoever understands
//! it. Runs of one agent share their pins, and a run's view is asked at every step.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A pinned body. A copy of it is the same body.
#[derive(Clone)]
pub struct Pin(Arc<Body>);

struct Body {
    json: Box<str>,
    read: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Pin {
    /// The JSON.
    pub fn json(&self) -> &str {
        &self.0.json
    }

    /// What `read` makes of the JSON, the first time that it is asked for; an error is not kept.
    pub fn read<T, E>(&self, read: impl FnOnce(&str) -> Result<T, E>) -> Result<Arc<T>, E>
    where
        T: Send + Sync + 'static,
    {
        let known = self.0.read.get().map(Arc::clone);
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return Ok(known);
        }
        let new = Arc::new(read(&self.0.json)?);
        // Another one may have read it meanwhile, or as something else: what is kept is one of
        // them, and right either way.
        let _ = self
            .0
            .read
            .set(Arc::clone(&new) as Arc<dyn Any + Send + Sync>);
        Ok(new)
    }

    /// Does nobody have it but whoever asks?
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T: Into<Box<str>>> From<T> for Pin {
    fn from(json: T) -> Self {
        Pin(Arc::new(Body {
            json: json.into(),
            read: OnceLock::new(),
        }))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_once_and_an_error_is_not_kept() {
        let pin = Pin::from("7");
        let mut times = 0;
        assert_eq!(pin.read(|_| Err::<u32, _>("not yet")), Err("not yet"));
        for _ in 0..2 {
            let read = pin.clone().read(|json| {
                times += 1;
                json.parse::<u32>()
            });
            assert_eq!(*read.unwrap(), 7);
        }
        assert_eq!(times, 1);
        // Whoever reads it as something else gets that.
        let text = pin.read(|json| Ok::<_, ()>(json.to_owned()));
        assert_eq!(*text.unwrap(), "7");
    }
}
