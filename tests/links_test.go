package tests_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	mdLink    = regexp.MustCompile(`!?\[[^\]]*\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile("^#{1,6} +(.*?) *$")
	mdFence   = regexp.MustCompile("^ *(```+)")
	mdCode    = regexp.MustCompile("`[^`]*`")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every relative link of a Markdown file leads to a file, and its anchor to a heading.
func TestLinksOfDocuments(t *testing.T) {
	t.Parallel()
	links := 0
	for _, path := range documents(t) {
		for _, line := range prose(t, path) {
			for _, match := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(line, ""), -1) {
				if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
					continue
				}
				links++
				checkLink(t, path, match[1])
			}
		}
	}
	if links < 80 {
		t.Errorf("found only %d links", links)
	}
}

// documents returns the paths of all Markdown files.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && (name == "bin" || name == "node_modules" || len(name) > 2 && name[0] == '.'):
			return fs.SkipDir
		case !entry.IsDir() && filepath.Ext(name) == ".md":
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func checkLink(t *testing.T, from, link string) {
	t.Helper()
	file, anchor, _ := strings.Cut(link, "#")
	target := from
	if file != "" {
		target = filepath.Join(filepath.Dir(from), file)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s links to %s, which does not exist", from, link)
		return
	}
	if anchor != "" && !anchors(t, target)[anchor] {
		t.Errorf("%s links to %s, but %s has no such heading", from, link, target)
	}
}

// anchors returns the anchors that GitHub makes of the headings of a file.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, line := range prose(t, path) {
		heading := mdHeading.FindStringSubmatch(line)
		if heading == nil {
			continue
		}
		slug := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-")
		unique := slug
		for n := 1; found[unique]; n++ {
			unique = slug + "-" + strconv.Itoa(n)
		}
		found[unique] = true
	}
	return found
}

// prose returns the lines of a file that are in no fenced block.
func prose(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	fence := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		mark := mdFence.FindStringSubmatch(line)
		switch {
		case fence != "":
			if mark != nil && len(mark[1]) >= len(fence) {
				fence = ""
			}
		case mark != nil:
			fence = mark[1]
		default:
			lines = append(lines, line)
		}
	}
	return lines
}
