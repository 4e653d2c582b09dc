//! The routes of the methods over HTTP, as the options of `ghost/v1/http.proto` declare them. `build.rs` writes the table;
//! `ghost-control` serves and describes it.

/// The verb of a route, in the order in which routes of one path are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads.
    Get,
    /// Creates or does something.
    Post,
    /// Changes something.
    Patch,
}

impl Verb {
    /// The name of the verb in a request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
        }
    }
}

/// Where a field is in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the path.
    Path,
    /// In the query.
    Query,
    /// In the JSON body.
    Body,
    /// In the header `Idempotency-Key`: the field is `request_id`.
    Key,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number between two.
    Number(i64, i64),
    /// A point in time in a query: milliseconds since 1970, or how long ago.
    Since,
    /// Texts.
    Texts,
    /// Texts in a message of their own, which can be present and empty.
    OptionalTexts,
    /// A JSON object, which the message has as text.
    Object,
}

/// A field of a request.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in the HTTP request.
    pub name: &'static str,
    /// Name in the message.
    pub field: &'static str,
    /// Number in the message.
    pub number: u32,
    /// Where it is.
    pub place: Place,
    /// Its type.
    pub kind: Kind,
    /// Whether a request without it is refused.
    pub required: bool,
    /// Description of a query parameter.
    pub about: &'static str,
}

/// A method with a route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The path of the method in gRPC, such as `/ghost.v1.Agents/List`.
    pub method: &'static str,
    /// Verb of the route.
    pub verb: Verb,
    /// Path of the route, with parameters in braces.
    pub path: &'static str,
    /// One sentence about it.
    pub about: &'static str,
    /// Name of the message of the request.
    pub request: &'static str,
    /// Name of the message of the answer.
    pub answer: &'static str,
    /// The fields of the request, in the order of the message.
    pub fields: &'static [Field],
}

impl Route {
    /// The fields at a place.
    pub fn fields_in(&self, place: Place) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().filter(move |field| field.place == place)
    }
}

include!(concat!(env!("OUT_DIR"), "/routes.rs"));
