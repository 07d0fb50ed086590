package turnlog

// An ExtractionKey says what a kept extraction is the answer to.
type ExtractionKey struct {
	SourceSHA256 string // hex, of the text that was searched
	Query        string
	Model        string // who was asked: the names of the models, in the order they are asked
	Prompt       int    // version of the words in which they were
}
