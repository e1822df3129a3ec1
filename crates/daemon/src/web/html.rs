//! HTML, written so that it cannot be broken: what comes from outside goes through `text` or the value of an attribute,
//! and both escape it. Names of elements and attributes are words of this program.

/// A piece of HTML that grows.
#[derive(Debug, Default)]
pub(super) struct Html {
    text: String,
}

/// Attributes of an element.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Html {
    /// What `fill` writes.
    pub(super) fn of(fill: impl FnOnce(&mut Self)) -> String {
        let mut html = Self::default();
        fill(&mut html);
        html.text
    }

    /// An element with what `fill` writes in it.
    pub(super) fn element(
        &mut self,
        name: &'static str,
        attributes: Attributes<'_>,
        fill: impl FnOnce(&mut Self),
    ) {
        self.begin(name, attributes);
        fill(self);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An element with a text in it.
    pub(super) fn say(&mut self, name: &'static str, attributes: Attributes<'_>, text: &str) {
        self.element(name, attributes, |html| html.text(text));
    }

    /// An element that has no end.
    pub(super) fn begin(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.text.push('<');
        self.text.push_str(name);
        for (key, value) in attributes {
            self.text.push(' ');
            self.text.push_str(key);
            self.text.push_str("=\"");
            self.escape(value);
            self.text.push('"');
        }
        self.text.push('>');
    }

    /// A text.
    pub(super) fn text(&mut self, text: &str) {
        self.escape(text);
    }

    /// HTML that this writer has made.
    pub(super) fn made(&mut self, html: &str) {
        self.text.push_str(html);
    }

    fn escape(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                '\'' => self.text.push_str("&#39;"),
                // Nothing that is not seen, nor turns what stands beside it around.
                letter if letter.is_control() || is_turning(letter) => self.text.push('\u{fffd}'),
                letter => self.text.push(letter),
            }
        }
    }
}

/// A button that shows the plan of what it stands for; `name` is what it is called among others.
pub(super) fn button(html: &mut Html, wish: &serde_json::Value, text: &str, name: &str) {
    let wish = wish.to_string();
    html.say(
        "button",
        &[
            ("type", "button"),
            ("data-wish", &wish),
            ("aria-label", name),
        ],
        text,
    );
}

/// A cell that carries the title of its column, for where the table is too wide to be one.
pub(super) fn cell(html: &mut Html, title: &'static str, text: &str) {
    html.say("td", &[("data-title", title)], text);
}

/// Whether a letter changes the direction in which its neighbours are read.
fn is_turning(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_never_an_element_nor_ends_an_attribute() {
        let evil = "\"><script>alert('x')</script>&\u{202e}\n";
        let html = Html::of(|html| html.say("p", &[("title", evil)], evil));
        let safe = "&quot;&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;\u{fffd}\u{fffd}";
        assert_eq!(html, format!("<p title=\"{safe}\">{safe}</p>"));
    }
}
