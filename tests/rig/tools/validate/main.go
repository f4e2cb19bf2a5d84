// Command validate answers what an API server of one Kubernetes version would say of objects, with that version's own
// code and without that server. The modules validate-1.30, validate-1.31 and so on choose the version.
//
// It reads one JSON document from standard input and writes one to standard output:
//
//	{"manifest": "YAML documents", "policies": [{"new": {…}, "old": {…}}]}
//	{"manifest": [{"kind": "…", "name": "…", "errors": ["…"]}], "policies": [["…"]]}
//
// Of the manifest it validates CustomResourceDefinitions and the kinds of admissionregistration.k8s.io as new objects;
// fields that this version does not know are errors. Each of the policies is validated with the manifest's
// CustomResourceDefinition: as a creation, or, with "old", as an update.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	admission "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

type question struct {
	Manifest string   `json:"manifest"`
	Policies []change `json:"policies"`
}

// change is a write of a custom resource: a creation where old is absent.
type change struct {
	New map[string]any `json:"new"`
	Old map[string]any `json:"old"`
}

type answer struct {
	Manifest []verdict  `json:"manifest"`
	Policies [][]string `json:"policies"`
}

type verdict struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	Errors []string `json:"errors"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var asked question
	if err := json.NewDecoder(in).Decode(&asked); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	result := answer{Manifest: []verdict{}, Policies: [][]string{}}
	definition, err := validateManifest(asked.Manifest, &result)
	if err != nil {
		return err
	}
	if len(asked.Policies) > 0 {
		resource, err := newResource(definition)
		if err != nil {
			return err
		}
		for _, change := range asked.Policies {
			result.Policies = append(result.Policies, resource.validate(change))
		}
	}
	return json.NewEncoder(out).Encode(result)
}

// validateManifest appends a verdict for each document that it knows, and returns the last CustomResourceDefinition.
func validateManifest(manifest string, result *answer) (*apiextensions.CustomResourceDefinition, error) {
	scheme := runtime.NewScheme()
	extensions.Install(scheme)
	admission.Install(scheme)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(
		apiextensions.SchemeGroupVersion, admissionregistration.SchemeGroupVersion)

	var definition *apiextensions.CustomResourceDefinition
	documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return definition, nil
		}
		if err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
		object, err := readUnstructured(document)
		if err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
		if !scheme.Recognizes(object.GroupVersionKind()) {
			continue
		}
		found := verdict{Kind: object.GetKind(), Name: object.GetName(), Errors: []string{}}
		typed, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			found.Errors = append(found.Errors, err.Error())
		} else {
			found.Errors = append(found.Errors, texts(validate(typed))...)
		}
		if crd, ok := typed.(*apiextensions.CustomResourceDefinition); ok {
			definition = crd
		}
		result.Manifest = append(result.Manifest, found)
	}
}

func readUnstructured(document []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	return object, yaml.Unmarshal(document, &object.Object)
}

func validate(object runtime.Object) field.ErrorList {
	switch object := object.(type) {
	case *apiextensions.CustomResourceDefinition:
		return extensionsvalidation.ValidateCustomResourceDefinition(context.Background(), object)
	case *admissionregistration.MutatingWebhookConfiguration:
		return admissionvalidation.ValidateMutatingWebhookConfiguration(object)
	case *admissionregistration.ValidatingWebhookConfiguration:
		return admissionvalidation.ValidateValidatingWebhookConfiguration(object)
	case *admissionregistration.ValidatingAdmissionPolicy:
		return admissionvalidation.ValidateValidatingAdmissionPolicy(object)
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		return admissionvalidation.ValidateValidatingAdmissionPolicyBinding(object)
	}
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("%T cannot be validated", object))}
}

func texts(errs field.ErrorList) []string {
	said := []string{}
	for _, err := range errs {
		said = append(said, err.Error())
	}
	return said
}

// strategy is what an API server asks before it stores a custom resource.
type strategy interface {
	Validate(ctx context.Context, object runtime.Object) field.ErrorList
	ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList
}

type resource struct {
	strategy strategy
	schema   *structuralschema.Structural
}

func newResource(definition *apiextensions.CustomResourceDefinition) (*resource, error) {
	if definition == nil {
		return nil, errors.New("policies need a CustomResourceDefinition in the manifest")
	}
	version := definition.Spec.Versions[0].Name
	described, err := apiextensions.GetSchemaForVersion(definition, version)
	if err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(described.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(described.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	kind := extensionsv1.SchemeGroupVersion.WithKind(definition.Spec.Names.Kind)
	kind.Group, kind.Version = definition.Spec.Group, version
	return &resource{
		schema: structural,
		strategy: customresource.NewStrategy(
			nil, false, kind, validator, nil, structural, nil, nil, nil),
	}, nil
}

func (r *resource) validate(change change) []string {
	object := r.decode(change.New)
	if change.Old == nil {
		return texts(r.strategy.Validate(context.Background(), object))
	}
	return texts(r.strategy.ValidateUpdate(context.Background(), object, r.decode(change.Old)))
}

// decode does to an object what an API server does when it reads one, from a request or from its storage.
func (r *resource) decode(content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: content}
	// JSON numbers as the API server reads them: integers where they are some
	if text, err := object.MarshalJSON(); err == nil {
		_ = object.UnmarshalJSON(text)
	}
	pruning.Prune(object.Object, r.schema, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, r.schema)
	defaulting.Default(object.Object, r.schema)
	return object
}
