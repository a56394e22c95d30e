//! The macro that turns a table of settings into a typed struct with `set`, `get` and iteration.

/// Declares a struct of settings. One line each:
/// `name: Type = default, kind, effect, "help";` where `Type` implements
/// [`SettingValue`](crate::settings::SettingValue) and `kind` says the range.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $Struct:ident in $module:literal;
        $( $name:ident : $ty:ty = $default:expr, $kind:expr, $effect:expr, $help:literal; )*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[allow(non_snake_case)] // fields carry the variables' own names, one of which has capitals
        pub struct $Struct {
            $( #[doc = $help] pub $name: $ty, )*
        }

        impl Default for $Struct {
            fn default() -> Self {
                Self { $( $name: <$ty as $crate::settings::SettingValue>::from_literal($default), )* }
            }
        }

        impl $Struct {
            /// The prefix of these variables, without the dash.
            pub const MODULE: &'static str = $module;

            /// Every setting of the module, in the order of the registry.
            pub const SETTINGS: &'static [$crate::settings::Setting] = &[
                $( $crate::settings::Setting {
                    module: $module,
                    name: stringify!($name),
                    kind: $kind,
                    effect: $effect,
                    help: $help,
                }, )*
            ];

            /// The setting called `name`: any letter case, with or without the module prefix.
            pub fn find(name: &str) -> Option<&'static $crate::settings::Setting> {
                $crate::settings::find($module, Self::SETTINGS, name)
            }

            /// Gives `name` the value written as `text`. A refused value changes nothing. Retired names are
            /// accepted and ignored, see [`retired`](fn@crate::settings::retired).
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), $crate::settings::SettingError> {
                let Some(setting) = Self::find(name) else {
                    return match $crate::settings::retired($module, name) {
                        Some(_) => Ok(()),
                        None => Err($crate::settings::unknown($module, Self::SETTINGS, name)),
                    };
                };
                match setting.name {
                    $( stringify!($name) => {
                        self.$name = $crate::settings::SettingValue::parse(text, &setting.kind)?;
                    } )*
                    _ => unreachable!("SETTINGS and the fields come from one table"),
                }
                Ok(())
            }

            /// The value of `name` as text, in the form that `set` reads. Secrets come out in clear.
            pub fn get(&self, name: &str) -> Option<String> {
                match Self::find(name)?.name {
                    $( stringify!($name) => Some($crate::settings::SettingValue::show(&self.$name)), )*
                    _ => None,
                }
            }

            /// Every setting with its value as text. Secrets come out in clear.
            pub fn iter(&self) -> impl Iterator<Item = (&'static $crate::settings::Setting, String)> + '_ {
                Self::SETTINGS.iter().map(|setting| (setting, self.get(setting.name).unwrap_or_default()))
            }
        }
    };
}

/// Declares an enum whose values are written as fixed words.
macro_rules! words {
    ( $(#[$meta:meta])* $Enum:ident { $( $(#[$vmeta:meta])* $Variant:ident = $word:literal, )* } ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Enum { $( $(#[$vmeta])* $Variant, )* }

        impl $Enum {
            /// The words, in the order of the values.
            pub const WORDS: &'static [&'static str] = &[$( $word, )*];
            /// The registry's description of this type.
            pub const KIND: $crate::settings::Kind = $crate::settings::Kind::Words(Self::WORDS);

            /// The word for this value.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$Variant => $word, )* }
            }
        }

        impl $crate::settings::SettingValue for $Enum {
            type Literal = Self;

            fn from_literal(literal: Self) -> Self {
                literal
            }

            fn parse(text: &str, _: &$crate::settings::Kind) -> Result<Self, $crate::settings::SettingError> {
                let word = text.trim();
                $( if word.eq_ignore_ascii_case($word) { return Ok(Self::$Variant); } )*
                Err($crate::settings::SettingError::NotAllowed { text: text.to_owned(), allowed: Self::WORDS })
            }

            fn show(&self) -> String {
                self.as_str().to_owned()
            }
        }
    };
}
