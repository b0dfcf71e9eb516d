//! JSON that a run has pinned, parsed once by its consumer. Runs of one agent share their pins, and
//! a run's view is read at every step.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A pinned body. Clones share the same body.
#[derive(Clone)]
pub struct Pin(Arc<PinBody>);

struct PinBody {
    json: Box<str>,
    read: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Pin {
    /// The JSON text.
    pub fn json(&self) -> &str {
        &self.0.json
    }

    /// The parsed JSON, cached after the first call; an error is not cached.
    pub fn read<T, E>(&self, read: impl FnOnce(&str) -> Result<T, E>) -> Result<Arc<T>, E>
    where
        T: Send + Sync + 'static,
    {
        let known = self.0.read.get().map(Arc::clone);
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return Ok(known);
        }
        let new = Arc::new(read(&self.0.json)?);
        // Another thread may have parsed it meanwhile, or as another type. Either value may be
        // cached, and the result is correct.
        let _ = self
            .0
            .read
            .set(Arc::clone(&new) as Arc<dyn Any + Send + Sync>);
        Ok(new)
    }

    /// Is this the only reference to the body?
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T: Into<Box<str>>> From<T> for Pin {
    fn from(json: T) -> Self {
        Pin(Arc::new(PinBody {
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
        // A reader of another type gets its own value.
        let text = pin.read(|json| Ok::<_, ()>(json.to_owned()));
        assert_eq!(*text.unwrap(), "7");
    }
}
