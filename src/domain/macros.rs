//! What many types of this crate have in common: values with fixed texts, types that are stored as their text, and records
//! with the values that a new one begins with.

/// An enum whose values have fixed texts: in the database, on the wire, in schemas and in lists.
#[macro_export]
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value's text in the database, on the wire and in lists.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl $crate::macros::TextEnum for $name {
            const ALL: &'static [Self] = Self::ALL;

            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($text),+] })
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::refusal::Refusal;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::refusal::text_value(text, $what)
            }
        }
    };
}
pub(crate) use text_enum;

/// An enum whose values have fixed texts.
pub trait TextEnum: Copy + 'static {
    /// Every value, in declaration order.
    const ALL: &'static [Self];

    /// The value's text.
    fn as_str(self) -> &'static str;
}

/// Serde for types that are stored as their text: `Display` writes it and `FromStr` checks it.
macro_rules! serde_as_text {
    ($($name:ident),+) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_as_text;

/// A record that is stored as JSON, and the function that makes a new one: a field with `= value` begins with that value, any
/// other is an argument of the function.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$of_field:meta])* pub $field:ident: $type:ty $(= $value:expr)?),+ $(,)? }

        $(#[$of_new:meta])*
        pub fn $new:ident($($arguments:tt)*)
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($(#[$of_field])* pub $field: $type),+ }

        impl $name {
            $(#[$of_new])*
            pub fn $new($($arguments)*) -> Self {
                Self { $($field: $crate::macros::first!($($value,)? $field)),+ }
            }
        }
    };
}
pub(crate) use record;

/// The first of one or two expressions.
macro_rules! first {
    ($only:ident) => {
        $only
    };
    ($first:expr, $second:ident) => {
        $first
    };
}
pub(crate) use first;
