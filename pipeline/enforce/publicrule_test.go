package enforce

import "testing"

// Whatever a client asks for, it gets a language that there is, or none.
func FuzzLanguages(f *testing.F) {
	for _, asked := range []string{"de", "pt-BR,pt;q=0.9, en;q=0.8", "de;q=NaN,en;q=-1", "x-;q=,-,,;", "*", "en-a-b-c;q=1e999"} {
		f.Add(asked)
	}
	messages := map[string]string{"": "a", "de": "b", "pt-BR": "c"}
	f.Fuzz(func(t *testing.T, asked string) {
		if tag := choose(messages, asked); messages[tag] == "" {
			t.Errorf("%q gets %q", asked, tag)
		}
	})
}
