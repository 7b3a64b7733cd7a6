package helmtest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write the Kustomize base anew from the chart")

const (
	base    = "../../kustomize/base"
	overlay = "../../kustomize/overlays/example"
)

// inBase are the values that the base is made of.
const inBase = minimal + "console: {enabled: true, tokenSecret: console-token}\n"

// Overlays choose the namespace, so programs find it in a variable.
const ownNamespace = "$(POD_NAMESPACE)"

const kustomization = `# Made from deploy/helm/tallygate: do not edit these files, but patch them in an overlay. To make them anew:
#   cd deploy/helm/test && go test -run TestKustomizeBase -rewrite
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
%sconfigMapGenerator:
  # Options of connections, each as TALLYGATE_NAME. Programs start again when one changes.
  - {name: tallygate-kafka, literals: ["TALLYGATE_KAFKA=kafka:9092"]}
  - {name: tallygate-redis, literals: ["TALLYGATE_REDIS=redis:6379"]}
  # Its name stays, because programs read the file again when it changes.
  - {name: tallygate-rules, files: [rules.yaml], options: {disableNameSuffixHash: true}}
`

// TestKustomizeBase compares the base with the chart.
func TestKustomizeBase(t *testing.T) {
	want, err := baseFiles()
	if err != nil {
		t.Fatal(err)
	}
	old, err := filepath.Glob(base + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o644); err != nil { //nolint:gosec // all may read it
				t.Fatal(err)
			}
		}
		return
	}
	const command = "cd deploy/helm/test && go test -run TestKustomizeBase -rewrite"
	for _, file := range old {
		if _, is := want[filepath.Base(file)]; !is {
			t.Errorf("%s is not of the chart: %s", file, command)
		}
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(base, name)); err != nil || string(got) != text {
			t.Errorf("%s is not what the chart renders (%v): %s", name, err, command)
		}
	}
}

// baseFiles are one file per object, the rules, and kustomization.yaml.
func baseFiles() (map[string]string, error) {
	rendered, err := renderIn(ownNamespace, inBase)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, text := range rendered {
		for _, doc := range between.Split(text, -1) {
			node, err := kyaml.Parse(doc)
			if err != nil || kyaml.IsMissingOrNull(node) || node.GetKind() == "" || node.GetKind() == "Pod" {
				continue // notes, what is turned off, and Helm's test
			}
			if node.GetKind() == "ConfigMap" && node.GetName() == "tallygate-rules" {
				files["rules.yaml"] = node.GetDataMap()["rules.yaml"]
				continue
			}
			if err := withoutHelm(node); err != nil {
				return nil, fmt.Errorf("%s %s: %w", node.GetKind(), node.GetName(), err)
			}
			text, err := node.String()
			if err != nil {
				return nil, err
			}
			files[strings.ToLower(node.GetKind())+"-"+node.GetName()+".yaml"] = text
		}
	}
	var resources strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != "rules.yaml" {
			fmt.Fprintf(&resources, "  - %s\n", name)
		}
	}
	files["kustomization.yaml"] = fmt.Sprintf(kustomization, &resources)
	return files, nil
}

// withoutHelm takes out what Helm alone needs, and puts addresses where an overlay can change them.
func withoutHelm(node *kyaml.RNode) error {
	if err := node.PipeE(kyaml.Lookup("metadata"), kyaml.Clear("namespace")); err != nil {
		return err
	}
	for _, labels := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"} {
			if err := node.PipeE(kyaml.Lookup(labels...), kyaml.Clear(label)); err != nil {
				return err
			}
		}
	}
	containers, err := node.Pipe(kyaml.Lookup("spec", "template", "spec", "containers"))
	if err != nil || containers == nil {
		return err
	}
	return containers.VisitElements(func(c *kyaml.RNode) error {
		args, err := c.Pipe(kyaml.Lookup("args"))
		if err != nil {
			return err
		}
		inVariable, variable := "", false
		args.YNode().Content = slices.DeleteFunc(args.Content(), func(arg *kyaml.Node) bool {
			variable = variable || strings.Contains(arg.Value, ownNamespace)
			option, _, _ := strings.Cut(strings.TrimPrefix(arg.Value, "--"), "=")
			if option != "kafka" && option != "redis" {
				return false
			}
			inVariable += "- configMapRef: {name: tallygate-" + option + "}\n"
			return true
		})
		if variable {
			own := kyaml.MustParse("{name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}")
			if err := c.PipeE(kyaml.Lookup("env"), kyaml.Append(own.YNode())); err != nil {
				return err
			}
		}
		return c.PipeE(kyaml.SetField("envFrom", kyaml.MustParse(inVariable)))
	})
}

// build is what `kubectl apply -k` would send, decoded, with variables of ConfigMaps as the options they are.
func build(fs filesys.FileSystem, dir string) (works []workload, all []any, err error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, dir)
	if err != nil {
		return nil, nil, err
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, nil, err
	}
	if works, all, err = decode(string(text)); err != nil {
		return nil, nil, err
	}
	for _, w := range works {
		for i := range w.template.Spec.Containers {
			if err := resolve(&w.template.Spec.Containers[i], all); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return works, all, nil
}

func resolve(c *core.Container, all []any) error {
	for _, from := range c.EnvFrom {
		m := configMap(all, from.ConfigMapRef.Name)
		if m == nil {
			return fmt.Errorf("no ConfigMap %s", from.ConfigMapRef.Name)
		}
		for name, value := range m.Data {
			option, is := strings.CutPrefix(name, "TALLYGATE_")
			if !is {
				return fmt.Errorf("%s: %s is no option", m.Name, name)
			}
			c.Args = append(c.Args, "--"+strings.ReplaceAll(strings.ToLower(option), "_", "-")+"="+value)
		}
	}
	return nil
}

func TestKustomizeBuilds(t *testing.T) {
	helps := helps(t)
	for _, dir := range []string{base, overlay} {
		works, all, err := build(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if len(works) != 3 {
			t.Errorf("%s: %d workloads", dir, len(works))
		}
		for _, m := range append(wrong(works, all, helps), refused(works, all)...) {
			t.Errorf("%s: %s", dir, m)
		}
	}
}

// The overlay changes what it says.
func TestTheOverlay(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"namespace: limits\n", "image: tallygate/aggregator:1.0.0\n", "image: tallygate/enforcer:1.0.0\n", "image: tallygate/tallygate:1.0.0\n",
		"replicas: 4\n", "TALLYGATE_KAFKA: kafka-1.kafka:9093,kafka-2.kafka:9093\n", "TALLYGATE_REDIS: redis.redis:6379\n",
		"name: tallygate-rules\n", "too-many-orders", "value: 1843MiB\n", "memory: 2Gi\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q", want)
		}
	}
	for _, not := range []string{"helm", "all-requests", "kafka:9092", ":latest"} {
		if strings.Contains(strings.ToLower(string(text)), not) {
			t.Errorf("it has %q", not)
		}
	}
}

func TestTheRulesCompile(t *testing.T) {
	for _, dir := range []string{"base", "overlays/example"} {
		c := exec.Command("go", "run", "./cmd/tallygate", "check", "deploy/kustomize/"+dir+"/rules.yaml") //nolint:gosec // ours
		c.Dir = "../../.."
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
}

// The checks above would notice these.
func TestBrokenOverlays(t *testing.T) {
	helps := helps(t)
	for says, change := range map[string]struct{ file, from, to string }{
		"resuorces":              {"aggregator.yaml", "resources:", "resuorces:"},
		"no option --kafak":      {"kustomization.yaml", "TALLYGATE_KAFKA_TLS=", "TALLYGATE_KAFAK="},
		"is no option":           {"kustomization.yaml", "TALLYGATE_KAFKA_TLS=", "TALYGATE_KAFKA_TLS="},
		"connect to { 9393/TCP}": {"kustomization.yaml", "kafka-2.kafka:9093", "kafka-2.kafka:9393"},
		"mounted nowhere":        {"kafka.yaml", "mountPath: /etc/tallygate/secrets/kafka", "mountPath: /elsewhere"},
		"no volume":              {"kafka.yaml", "value: {name: kafka, secret", "value: {name: kafak, secret"},
		"agregator":              {"kustomization.yaml", "name: tallygate-aggregator,", "name: tallygate-agregator,"},
		"connect to { 9093/TCP}": {"network.yaml", "9093", "9099"},
	} {
		fs := filesys.MakeFsInMemory()
		if err := copied(fs, change.file, change.from, change.to); err != nil {
			t.Fatal(err)
		}
		works, all, err := build(fs, "/overlays/example")
		found := fmt.Sprint(err, wrong(works, all, helps), refused(works, all))
		if !strings.Contains(found, says) {
			t.Errorf("%s instead of %s is noticed only as %s", change.to, change.from, found)
		}
	}
}

// copied puts the base and the overlay into fs, with one change.
func copied(fs filesys.FileSystem, file, from, to string) error {
	changed := false
	for dir, into := range map[string]string{base: "/base/", overlay: "/overlays/example/"} {
		files, err := filepath.Glob(dir + "/*")
		if err != nil {
			return err
		}
		for _, path := range files {
			text, err := os.ReadFile(path) //nolint:gosec // ours
			if err != nil {
				return err
			}
			if dir == overlay && filepath.Base(path) == file {
				changed = strings.Contains(string(text), from)
				text = []byte(strings.ReplaceAll(string(text), from, to))
			}
			if err := fs.WriteFile(into+filepath.Base(path), text); err != nil {
				return err
			}
		}
	}
	if !changed {
		return fmt.Errorf("%s has no %q", file, from)
	}
	return nil
}
