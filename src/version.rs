//! The version of this program, as it reports and stores it.

/// The version of this program, such as `0.1.0`.
///
/// In builds with failpoints, `ABIDE_TEST_VERSION` replaces it: tests of an upgrade need a program of
/// another version, and to build the crate a second time would double what they take.
pub fn version() -> &'static str {
    #[cfg(any(debug_assertions, feature = "failpoints"))]
    {
        static REPLACED: std::sync::LazyLock<Option<String>> =
            std::sync::LazyLock::new(|| std::env::var("ABIDE_TEST_VERSION").ok());
        if let Some(version) = &*REPLACED {
            return version;
        }
    }
    env!("CARGO_PKG_VERSION")
}
