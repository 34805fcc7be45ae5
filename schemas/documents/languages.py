"""How languages look in print: the letters that each has beyond ASCII, and its commonest words.

A text in an old encoding is known by them (`guess.py`). Languages that are written without blanks
between words have their commonest characters in place of words, and encodings of their own.
"""

from typing import NamedTuple


class Language(NamedTuple):
    """A language; `letters` is the inside of a character class, in small letters.

    `encodings` are of a language that is written without blanks; its `words` are of any length.
    """

    name: str
    letters: str
    words: frozenset[str]
    encodings: frozenset[str] = frozenset()

    @property
    def is_beyond_ascii(self) -> bool:
        """Whether it has an alphabet of its own."""
        return self.letters[0] > "\u02ff"


_RUSSIAN = "а-яё"
_HAN = "\u4e00-\u9fff\u2190-\u27bf\u3000-\u303f\uff01-\uff65"
_SPACED = (
    (
        "English",
        "éèêëïîçñöüäàâôûáíóæœå",
        "the of and to in is that for with as are this it be on was by not or from which have an",
    ),
    (
        "German",
        "äöüßéèàáêâç",
        (
            "der die und das den von zu mit ist des sich auf für dem nicht ein eine als auch es im "
            "wird werden sie oder wir sind bei aus nach einer"
        ),
    ),
    (
        "French",
        "éèêëàâäîïôöùûüçœæÿ",
        (
            "de la les des et le en un une du que est pour dans qui par sur au plus pas sont avec "
            "ce il ne se nous vous cette ou"
        ),
    ),
    (
        "Spanish",
        "áéíóúüñªº",
        "de la que el en los del las por con una para se un es no su como más al lo este esta",
    ),
    (
        "Portuguese",
        "áâãàéêíóôõúüçªº",
        "de que não uma para com os do da em um no na se por as dos mais como ao ou são é",
    ),
    (
        "Italian",
        "àèéìíîòóùúª°",
        "di che il la per una in non del sono con un della le si da dei è come nel gli al ha",
    ),
    (
        "Catalan",
        "àçéèíïóòúü·",
        "de la que el en els per les una del amb un es no més al com dels és",
    ),
    (
        "Dutch",
        "éëïèêöüáóíçà",
        "de het een van en in is dat op te voor met zijn niet aan er door ook om als wordt bij",
    ),
    (
        "Danish",
        "æøåéäöü",
        "og at en det er til af på som for med den de ikke der har et kan fra eller vi",
    ),
    (
        "Norwegian",
        "æøåéòôäö",
        "og på som er for med det til av en ikke har den kan fra et vil eller de at vi",
    ),
    (
        "Swedish",
        "åäöéüàøæ",
        "och att det som en på är av för med den till inte de ett har om eller kan från vi du",
    ),
    (
        "Finnish",
        "äöåšžé",
        "ja on ei se että tai ovat kun niin oli voi sekä mutta jos joka sen myös ole hän tämä",
    ),
    (
        "Icelandic",
        "áðéíóúýþæö",
        "og að er sem til um það með við fyrir ekki frá hann eru var en þar á í",
    ),
    (
        "Estonian",
        "äöõüšžé",
        "ja on ei et see kui oma ka või mis aga ning oli selle seda ole olid nii",
    ),
    (
        "Latvian",
        "āčēģīķļņšūžōŗ",
        "un ir ar par no kas uz lai vai tas ka nav pēc kā tiek bet šo",
    ),
    (
        "Lithuanian",
        "ąčęėįšųūž",
        "ir yra kad su bet iš tai kaip ar nuo apie po dėl tik jis būti šis buvo",
    ),
    (
        "Polish",
        "ąćęłńóśźż",
        "się nie na jest do że to jak dla przez po oraz od ale lub są ze za co tym być był",
    ),
    (
        "Czech",
        "áčďéěíňóřšťúůýžö",
        "se na je že to do pro jako jsou nebo které který by za ale od po při jeho jsem ve si",
    ),
    (
        "Slovak",
        "áäčďéíĺľňóôŕšťúýžö",
        "sa na je že to do pre ako sú alebo ktoré ktorý by za ale od po pri jeho som vo si",
    ),
    (
        "Hungarian",
        "áéíóöőúüű",
        "az és hogy nem egy is meg van ez vagy ha csak volt mint kell de amely azt el már",
    ),
    (
        "Romanian",
        "ăâîșțşţ",
        "de și în la cu pe să că care este nu din un mai pentru sau sunt au fi şi ca o al",
    ),
    (
        "Croatian",
        "čćđšžäöü",
        "je na se za da od su ili koji što kao nije biti iz do po ne to koja bi ako će sa u",
    ),
    (
        "Slovene",
        "čšžćđ",
        "je na se za in da so ki pri ali kot ter bi po tudi od ne ni to ko bil bila lahko iz",
    ),
    (
        "Turkish",
        "çğıöşüâîû\u0307",
        "ve bir bu için ile da de olarak olan gibi daha çok değil ne kadar en var her sonra",
    ),
    (
        "Albanian",
        "ëç",
        "dhe të në një për me që nga është ka janë si do nuk se më i",
    ),
    (
        "Russian",
        _RUSSIAN,
        "не на что по это как из для от но он все или также его так мы при за до был было если",
    ),
    (
        "Ukrainian",
        "а-щьюяєіїґ",
        "не на що до та як для від це або за бути його але при він ми та із про був якщо",
    ),
    (
        "Belarusian",
        "а-зй-шы-яёіў",
        "не на што да як для ад гэта або па але ён мы пры за быў яго калі",
    ),
    (
        "Bulgarian",
        "а-щъьюя",
        "на за да се от не са по като това или че при до със след има ще може беше",
    ),
    (
        "Serbian",
        "а-ик-шђјљњћџ",
        "је на се да за са од су не као или који што из до није ће по ако био",
    ),
    (
        "Macedonian",
        "а-ик-шѓѕјљњќџ",
        "во на за да се од не како што со или ќе до по тоа ја го не беше",
    ),
    (
        "Greek",
        "α-ωάέήίόύώϊϋΐΰ",
        "και το να της την του με που για από τα των στο είναι δεν θα τη οι σε στην τον ένα μια",
    ),
    (
        "Hebrew",
        "א-ת",
        "של את על לא הוא או עם זה כי גם אם אל כל היא אני יש כדי אין היה",
    ),
    (
        "Arabic",
        "ء-غف-ْ",
        "في من على أن إلى عن هذا هذه مع ما التي لا أو كان الذي هو كل بعد لم قد",
    ),
)
_UNSPACED = (
    (
        "Thai",
        "cp874",
        "\u0e01-\u0e3a\u0e40-\u0e5b",
        "การ ที่ และ ใน ของ เป็น ได้ ไม่ มี ให้ จะ ว่า ความ นี้ กับ จาก",
    ),
    (
        "Japanese",
        "cp932 euc_jp",
        "\u3041-\u30ff" + _HAN,
        "の に は を た が で て と し れ さ い る な す ま こ か ら も ー ン ス ト ル ア",
    ),
    (
        "Chinese",
        "gb18030",
        _HAN,
        "的 一 是 不 了 在 人 有 我 他 这 中 大 来 上 个 国 到 说 们 为 和 你 出 也 时 年 以 会 可",
    ),
    (
        "Chinese, traditional",
        "big5hkscs gb18030",
        _HAN,
        "的 一 是 不 了 在 人 有 我 他 這 中 大 來 上 個 國 到 說 們 為 和 你 出 也 時 年 以 會 可",
    ),
    (
        "Korean",
        "cp949",
        "가-힣" + _HAN,
        "이 다 는 의 에 을 가 고 하 지 로 기 한 를 은 사 어 나 서 도",
    ),
)
LANGUAGES = (
    *(Language(name, letters, frozenset(words.split())) for name, letters, words in _SPACED),
    *(
        Language(name, letters, frozenset(words.split()), frozenset(encodings.split()))
        for name, encodings, letters, words in _UNSPACED
    ),
)
