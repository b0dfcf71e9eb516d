//! Enums with a checked text form: one text for rows, wire and people.

/// Defines an enum in which each variant has one text. The comments are also those of its schema.
#[macro_export]
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema,
        )]
        $(#[$doc])*
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
                $name::parse(&text).ok_or_else(|| {
                    let known = [$($text),+];
                    serde::de::Error::custom($crate::kernel::text::text_enum::unknown(&text, &known))
                })
            }
        }

        impl $name {
            /// Every variant, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The text that is stored and sent.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// Parses the stored text; `None` for an unknown text.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub use text_enum;

/// The message for a text that is none of the `known` ones.
#[doc(hidden)]
pub fn unknown(text: &str, known: &[&str]) -> String {
    let text = super::prefix(text, 80);
    format!("{text:?} is not one of {}", known.join(", "))
}
